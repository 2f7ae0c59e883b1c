"""Rejects graphs that would change a table when they are served."""

from typing import Any

from lodestar.export.plain.graph_check import all_nodes

# Lookup ops write if one of these attributes is true.
_WRITING_ATTRIBUTES = ("insert", "count")
_WRITING_OPS = frozenset(
    f"Lodestar>{name}"
    for name in (
        *("EmbeddingApply", "EmbeddingApplyAll", "EmbeddingAssignIfUnchanged"),
        *("EmbeddingClear", "EmbeddingCompact", "EmbeddingDecayFrequencies"),
        *("EmbeddingEvict", "EmbeddingImport", "EmbeddingInsertOrAssign"),
        *("EmbeddingReleaseStep", "EmbeddingRemove", "EmbeddingSetStep"),
        *("IdTableImport", "IdTableImportFile", "IdTableInsert"),
        "IdTableRemove",
    )
)


def check_read_only(graph: Any) -> None:
    """Raises ValueError if an op of `graph` or its functions writes."""
    for node in all_nodes(graph):
        writes = node.op in _WRITING_OPS or (
            node.op.startswith("Lodestar>Embedding")
            and any(node.attr[name].b for name in _WRITING_ATTRIBUTES)
        )
        if writes:
            raise ValueError(
                f"`model` called with training=False has the op {node.name!r}, "
                f"a {node.op}, which changes a table. Do not call layers with "
                "training=True or write to tables when the model serves."
            )
