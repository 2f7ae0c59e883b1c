"""Keras 3 layers."""

from lodestar.layers.device_plan import plan_devices
from lodestar.layers.dynamic_embedding import DynamicEmbedding
from lodestar.layers.embedding_collection import EmbeddingCollection
from lodestar.layers.id_lookup import IdLookup
from lodestar.layers.sequence_conv import SequenceConv
from lodestar.layers.sequence_expand import SequenceExpand, SequenceExpandAs
from lodestar.layers.sequence_pad import SequencePad
from lodestar.layers.sequence_pool import SequencePool
from lodestar.layers.sequence_softmax import SequenceSoftmax
from lodestar.layers.sequence_unpad import SequenceUnpad
from lodestar.layers.to_lod import ToLoD
from lodestar.layers.to_ragged import ToRagged

__all__ = [
    "DynamicEmbedding",
    "EmbeddingCollection",
    "IdLookup",
    "SequenceConv",
    "SequenceExpand",
    "SequenceExpandAs",
    "SequencePad",
    "SequencePool",
    "SequenceSoftmax",
    "SequenceUnpad",
    "ToLoD",
    "ToRagged",
    "plan_devices",
]
