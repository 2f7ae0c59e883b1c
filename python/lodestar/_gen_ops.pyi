"""What TensorFlow generates of the library's ops; see tools/op_stubs.py."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf


def lodestar_begin_step(
    handles: Sequence[tf.Tensor],
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_begin_turn(
    turns: tf.Tensor,
    copy: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _BeginUpdate(NamedTuple):
    attempt: tf.Tensor
    committed: tf.Tensor


def lodestar_begin_update(
    log: tf.Tensor,
    update: tf.Tensor,
    name: str | None = None,
) -> _BeginUpdate: ...


class _ClaimServer(NamedTuple):
    owner: tf.Tensor
    silence: tf.Tensor


def lodestar_claim_server(
    program: tf.Tensor,
    lease: tf.Tensor,
    name: str | None = None,
) -> _ClaimServer: ...


def lodestar_close_updates(
    log: tf.Tensor,
    below: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_commit_update(
    log: tf.Tensor,
    attempt: tf.Tensor,
    attempt_name: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_cut_buffer(
    buffer: tf.Tensor,
    places: tf.Tensor,
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_embedding_apply(
    handle: tf.Tensor,
    ids: tf.Tensor,
    gradients: tf.Tensor,
    hyperparameters: tf.Tensor,
    next_step: tf.Tensor,
    optimizer: str,
    slot_inits: Sequence[float],
    create_missing: bool = False,
    nonfinite: str = 'raise',
    inside_step: bool = False,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_apply_all(
    handles: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    hyperparameters: Sequence[tf.Tensor],
    next_steps: Sequence[tf.Tensor],
    optimizers: Sequence[str] | Sequence[bytes],
    slot_inits: Sequence[float],
    create_missing: Sequence[bool],
    nonfinite: str = 'raise',
    inside_step: bool = False,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_assemble(
    rows: Sequence[tf.Tensor],
    places: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_assign_if_unchanged(
    handle: tf.Tensor,
    ids: tf.Tensor,
    shared: tf.Tensor,
    versions: tf.Tensor,
    rows: tf.Tensor,
    slots: tf.Tensor,
    next_step: tf.Tensor,
    optimizer: str,
    slot_names: Sequence[str] | Sequence[bytes] = [],
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_check_apply(
    handle: tf.Tensor,
    ids: tf.Tensor,
    gradients: tf.Tensor,
    optimizer: str,
    slot_names: Sequence[str] | Sequence[bytes] = [],
    additions: int = 0,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_clear(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_collection_count(
    counters: tf.Tensor,
    positions: Sequence[tf.Tensor],
    resident: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_collection_counters(
    num_features: int,
    container: str = '',
    shared_name: str = '',
    name: str | None = None,
) -> tf.Tensor: ...


class _EmbeddingCollectionGradient(NamedTuple):
    summed_ids: list[tf.Tensor]
    sums: list[tf.Tensor]


def lodestar_embedding_collection_gradient(
    gradients: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    unique_ids: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor],
    winners: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    table_dtypes: Sequence[tf.DType],
    dims: Sequence[int],
    deduplicated: bool,
    name: str | None = None,
) -> _EmbeddingCollectionGradient: ...


class _EmbeddingCollectionLookup(NamedTuple):
    rows: list[tf.Tensor]
    unique_ids: list[tf.Tensor]
    positions: list[tf.Tensor]
    winners: list[tf.Tensor]


def lodestar_embedding_collection_lookup(
    handles: Sequence[tf.Tensor],
    hooks: Sequence[tf.Tensor],
    missing_rows: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    counters: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    feature_dtypes: Sequence[tf.DType],
    M: int,
    missing: Sequence[str] | Sequence[bytes],
    insert: bool = True,
    count: bool = True,
    admit: str = 'policy',
    name: str | None = None,
) -> _EmbeddingCollectionLookup: ...


class _EmbeddingCollectionPartitionBags(NamedTuple):
    part_ids: list[tf.Tensor]
    part_row_splits: list[tf.Tensor]
    part_factors: list[tf.Tensor]
    places: list[tf.Tensor]


def lodestar_embedding_collection_partition_bags(
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    T: int,
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    num_parts: int,
    N: int,
    name: str | None = None,
) -> _EmbeddingCollectionPartitionBags: ...


class _EmbeddingCollectionPool(NamedTuple):
    pooled: list[tf.Tensor]
    winners: list[tf.Tensor]


def lodestar_embedding_collection_pool(
    hooks: Sequence[tf.Tensor],
    rows: Sequence[tf.Tensor],
    unique_ids: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    default_rows: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    feature_dtypes: Sequence[tf.DType],
    M: int,
    name: str | None = None,
) -> _EmbeddingCollectionPool: ...


def lodestar_embedding_collection_pool_weights_gradient(
    hooks: Sequence[tf.Tensor],
    rows: Sequence[tf.Tensor],
    unique_ids: Sequence[tf.Tensor],
    positions: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_embedding_collection_stats(
    handle: tf.Tensor,
    reset: bool = False,
    name: str | None = None,
) -> tf.Tensor: ...


class _EmbeddingCollectionUnique(NamedTuple):
    unique_ids: list[tf.Tensor]
    positions: list[tf.Tensor]


def lodestar_embedding_collection_unique(
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    T: int,
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    name: str | None = None,
) -> _EmbeddingCollectionUnique: ...


def lodestar_embedding_collection_weights_gradient(
    handles: Sequence[tf.Tensor],
    hooks: Sequence[tf.Tensor],
    missing_rows: Sequence[tf.Tensor],
    gradients: Sequence[tf.Tensor],
    ids: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    weights: Sequence[tf.Tensor],
    names: Sequence[str] | Sequence[bytes],
    tables: Sequence[int],
    combiners: Sequence[str] | Sequence[bytes],
    ragged: Sequence[bool],
    weighted: Sequence[bool],
    salted: Sequence[bool],
    salts: Sequence[int],
    use_padding: Sequence[bool],
    padding_ids: Sequence[int],
    use_default: Sequence[bool],
    default_ids: Sequence[int],
    max_lengths: Sequence[int],
    missing: Sequence[str] | Sequence[bytes],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_embedding_compact(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_decay_frequencies(
    handle: tf.Tensor,
    rate: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _EmbeddingEvict(NamedTuple):
    count: tf.Tensor
    ids: tf.Tensor
    rows: tf.Tensor


def lodestar_embedding_evict(
    handle: tf.Tensor,
    own_policy: bool = True,
    max_rows: int = 0,
    max_rows_policy: str = 'lru',
    max_age: int = -1,
    min_norm: float = 0,
    min_frequency: int = 0,
    return_rows: bool = False,
    dtype: tf.DType = tf.float32,
    name: str | None = None,
) -> _EmbeddingEvict: ...


class _EmbeddingExport(NamedTuple):
    ids: tf.Tensor
    rows: tf.Tensor
    slots: tf.Tensor
    frequencies: tf.Tensor
    last_seen: tf.Tensor
    optimizer: tf.Tensor
    slot_names: tf.Tensor
    slot_inits: tf.Tensor
    counters: tf.Tensor
    pending_ids: tf.Tensor
    pending_sightings: tf.Tensor
    pending_last_seen: tf.Tensor
    sketch: tf.Tensor
    shared_rows: tf.Tensor
    shared_slots: tf.Tensor


def lodestar_embedding_export(
    handle: tf.Tensor,
    dtype: tf.DType = tf.float32,
    slot_dtype: tf.DType = tf.float32,
    optimizer_slots: bool = True,
    with_rows: bool = True,
    name: str | None = None,
) -> _EmbeddingExport: ...


class _EmbeddingFind(NamedTuple):
    rows: tf.Tensor
    found: tf.Tensor


def lodestar_embedding_find(
    handle: tf.Tensor,
    hook: tf.Tensor,
    ids: tf.Tensor,
    missing_row: tf.Tensor,
    missing: str = 'zeros',
    use_padding: bool = False,
    padding_id: int = 0,
    name: str | None = None,
) -> _EmbeddingFind: ...


class _EmbeddingFindOrInsert(NamedTuple):
    rows: tf.Tensor
    unique_ids: tf.Tensor
    positions: tf.Tensor


def lodestar_embedding_find_or_insert(
    handle: tf.Tensor,
    hook: tf.Tensor,
    ids: tf.Tensor,
    missing_row: tf.Tensor,
    insert: bool = True,
    count: bool = True,
    admit: str = 'policy',
    missing: str = 'zeros',
    use_padding: bool = False,
    padding_id: int = 0,
    name: str | None = None,
) -> _EmbeddingFindOrInsert: ...


class _EmbeddingFindOrInsertUnique(NamedTuple):
    rows: tf.Tensor
    resident: tf.Tensor


def lodestar_embedding_find_or_insert_unique(
    handle: tf.Tensor,
    ids: tf.Tensor,
    occurrences: tf.Tensor,
    missing_row: tf.Tensor,
    insert: bool = True,
    count: bool = True,
    admit: str = 'policy',
    missing: str = 'zeros',
    name: str | None = None,
) -> _EmbeddingFindOrInsertUnique: ...


def lodestar_embedding_frequency(
    handle: tf.Tensor,
    ids: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _EmbeddingGatherForUpdate(NamedTuple):
    row_ids: tf.Tensor
    row_shared: tf.Tensor
    row_gradients: tf.Tensor
    rows: tf.Tensor
    slots: tf.Tensor
    versions: tf.Tensor


def lodestar_embedding_gather_for_update(
    handle: tf.Tensor,
    ids: tf.Tensor,
    shared: tf.Tensor,
    gradients: tf.Tensor,
    optimizer: str,
    slot_names: Sequence[str] | Sequence[bytes] = [],
    slot_inits: Sequence[float] = [],
    nonfinite: str = 'raise',
    name: str | None = None,
) -> _EmbeddingGatherForUpdate: ...


def lodestar_embedding_gradient(
    gradient: tf.Tensor,
    positions: tf.Tensor,
    unique_ids: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_import(
    handle: tf.Tensor,
    ids: tf.Tensor,
    rows: tf.Tensor,
    slots: tf.Tensor,
    frequencies: tf.Tensor,
    last_seen: tf.Tensor,
    optimizer: tf.Tensor,
    slot_names: tf.Tensor,
    slot_inits: tf.Tensor,
    counters: tf.Tensor,
    pending_ids: tf.Tensor,
    pending_sightings: tf.Tensor,
    pending_last_seen: tf.Tensor,
    sketch: tf.Tensor,
    shared_rows: tf.Tensor,
    shared_slots: tf.Tensor,
    mode: str = 'replace',
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_insert_or_assign(
    handle: tf.Tensor,
    ids: tf.Tensor,
    rows: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _EmbeddingInspect(NamedTuple):
    rows: tf.Tensor
    slots: tf.Tensor
    slot_names: tf.Tensor
    frequencies: tf.Tensor
    last_seen: tf.Tensor
    shards: tf.Tensor
    states: tf.Tensor


def lodestar_embedding_inspect(
    handle: tf.Tensor,
    ids: tf.Tensor,
    dtype: tf.DType = tf.float32,
    slot_dtype: tf.DType = tf.float32,
    name: str | None = None,
) -> _EmbeddingInspect: ...


class _EmbeddingPartition(NamedTuple):
    parts: list[tf.Tensor]
    places: tf.Tensor


def lodestar_embedding_partition(
    ids: tf.Tensor,
    num_parts: int,
    name: str | None = None,
) -> _EmbeddingPartition: ...


class _EmbeddingPartitionRows(NamedTuple):
    part_ids: list[tf.Tensor]
    part_rows: list[tf.Tensor]
    places: tf.Tensor


def lodestar_embedding_partition_rows(
    ids: tf.Tensor,
    rows: tf.Tensor,
    num_parts: int,
    name: str | None = None,
) -> _EmbeddingPartitionRows: ...


def lodestar_embedding_release_step(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_remove(
    handle: tf.Tensor,
    ids: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_remove_all(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _EmbeddingRestartSlots(NamedTuple):
    former: tf.Tensor
    fits: tf.Tensor


def lodestar_embedding_restart_slots(
    handle: tf.Tensor,
    optimizer: str,
    slot_inits: Sequence[float],
    slot_names: Sequence[str] | Sequence[bytes] = [],
    keep: str = 'none',
    name: str | None = None,
) -> _EmbeddingRestartSlots: ...


def lodestar_embedding_set_step(
    handle: tf.Tensor,
    step: tf.Tensor,
    evicts: bool = True,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_embedding_size(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_embedding_stage(
    handle: tf.Tensor,
    ids: tf.Tensor,
    gradients: tf.Tensor,
    hyperparameters: tf.Tensor,
    next_step: tf.Tensor,
    log: tf.Tensor,
    attempt: tf.Tensor,
    attempt_name: tf.Tensor,
    optimizer: str,
    slot_inits: Sequence[float],
    create_missing: bool = False,
    nonfinite: str = 'raise',
    name: str | None = None,
) -> tf.Operation | None: ...


class _EmbeddingStats(NamedTuple):
    stats: tf.Tensor
    shards: tf.Tensor


def lodestar_embedding_stats(
    handle: tf.Tensor,
    reset: bool = False,
    name: str | None = None,
) -> _EmbeddingStats: ...


def lodestar_embedding_step(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _EmbeddingUnique(NamedTuple):
    unique_ids: tf.Tensor
    positions: tf.Tensor


def lodestar_embedding_unique(
    ids: tf.Tensor,
    use_padding: bool = False,
    padding_id: int = 0,
    name: str | None = None,
) -> _EmbeddingUnique: ...


def lodestar_embedding_variable(
    dim: int,
    container: str = '',
    shared_name: str = '',
    dtype: tf.DType = tf.float32,
    initializer: str = 'uniform',
    initializer_a: float = -0.05,
    initializer_b: float = 0.05,
    seed: int = 0,
    init_salt: int = 0,
    num_shards: int = 0,
    admission: str = 'all',
    min_count: int = 1,
    count_occurrences: bool = False,
    num_counters: int = 0,
    num_hashes: int = 0,
    max_rows: int = 0,
    max_rows_policy: str = 'lru',
    when_full: str = 'evict',
    max_age: int = -1,
    min_norm: float = 0,
    min_norm_every: int = 1000,
    min_frequency: int = 0,
    min_frequency_every: int = 1000,
    shared_rows: int = 0,
    rounding: str = 'nearest',
    stored_as: str = 'same',
    table_name: str = '',
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_encode_ragged(
    like: tf.Tensor,
    values: Sequence[tf.Tensor],
    row_splits: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_end_step(
    step: tf.Tensor,
    handles: Sequence[tf.Tensor],
    next_steps: Sequence[tf.Tensor],
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_file_list_forget(
    list: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_file_list_next(
    list: tf.Tensor,
    shuffle: bool,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_file_list_put(
    list: tf.Tensor,
    filenames: tf.Tensor,
    seed: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_hash_text(
    data: tf.Tensor,
    offsets: tf.Tensor,
    prefix: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _HoldTurn(NamedTuple):
    turn: tf.Tensor
    copy: tf.Tensor


def lodestar_hold_turn(
    turns: tf.Tensor,
    name: str | None = None,
) -> _HoldTurn: ...


def lodestar_id_table(
    key_dtype: tf.DType,
    container: str = '',
    shared_name: str = '',
    mutable: bool = False,
    name: str | None = None,
) -> tf.Tensor: ...


class _IdTableExport(NamedTuple):
    keys: tf.Tensor
    values: tf.Tensor


def lodestar_id_table_export(
    handle: tf.Tensor,
    Tkeys: tf.DType,
    name: str | None = None,
) -> _IdTableExport: ...


def lodestar_id_table_find(
    handle: tf.Tensor,
    keys: tf.Tensor,
    default_value: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_id_table_find_or_hash(
    handle: tf.Tensor,
    keys: tf.Tensor,
    num_oov_buckets: int,
    first_bucket: int = -1,
    hasher: str = 'fast',
    hasher_key: Sequence[int] = [],
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_id_table_import(
    handle: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_id_table_import_file(
    handle: tf.Tensor,
    path: tf.Tensor,
    key_column: int = -2,
    value_column: int = -1,
    delimiter: str = '\t',
    vocab_size: int = -1,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_id_table_insert(
    handle: tf.Tensor,
    keys: tf.Tensor,
    values: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_id_table_memory_used(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_id_table_remove(
    handle: tf.Tensor,
    keys: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_id_table_size(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _IndexExamples(NamedTuple):
    offsets: tf.Tensor
    records: tf.Tensor
    names: tf.Tensor
    kinds: tf.Tensor
    levels: tf.Tensor
    described: tf.Tensor


def lodestar_index_examples(
    filename: tf.Tensor,
    block_bytes: tf.Tensor,
    described_records: tf.Tensor,
    name: str | None = None,
) -> _IndexExamples: ...


class _IndexText(NamedTuple):
    offsets: tf.Tensor
    records: tf.Tensor
    size: tf.Tensor
    ends_with_newline: tf.Tensor


def lodestar_index_text(
    filename: tf.Tensor,
    block_bytes: tf.Tensor,
    delimiter: tf.Tensor,
    quote: tf.Tensor,
    skip_lines: tf.Tensor,
    num_fields: tf.Tensor,
    name: str | None = None,
) -> _IndexText: ...


def lodestar_instant_dataset(
    filenames: tf.Tensor,
    batch_size: tf.Tensor,
    num_parallel_files: tf.Tensor,
    shuffle_rows: tf.Tensor,
    seed: tf.Tensor,
    num_shards: tf.Tensor,
    shard_index: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    batch_sizes: Sequence[bool],
    drop_remainder: bool = False,
    deterministic: bool = True,
    open_command: Sequence[str] | Sequence[bytes] = [],
    whole_files: bool = False,
    skip_errors: bool = False,
    skip_log: str = '',
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_last_turn_is_held(
    turns: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_library_version(
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_lod_validate(
    num_rows: tf.Tensor,
    levels: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_make_turns(
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_multi_slot_dataset(
    filenames: tf.Tensor,
    batch_size: tf.Tensor,
    num_parallel_files: tf.Tensor,
    shuffle_rows: tf.Tensor,
    seed: tf.Tensor,
    num_shards: tf.Tensor,
    shard_index: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    drop_remainder: bool = False,
    deterministic: bool = True,
    open_command: Sequence[str] | Sequence[bytes] = [],
    whole_files: bool = False,
    skip_errors: bool = False,
    skip_log: str = '',
    pipe_command: Sequence[str] | Sequence[bytes] = [],
    line_fields: Sequence[str] | Sequence[bytes] = [],
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_norm_dataset(
    filenames: tf.Tensor,
    batch_size: tf.Tensor,
    num_parallel_files: tf.Tensor,
    shuffle_rows: tf.Tensor,
    seed: tf.Tensor,
    num_shards: tf.Tensor,
    shard_index: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    slot_kinds: Sequence[str] | Sequence[bytes],
    drop_remainder: bool = False,
    deterministic: bool = True,
    open_command: Sequence[str] | Sequence[bytes] = [],
    whole_files: bool = False,
    skip_errors: bool = False,
    skip_log: str = '',
    key_type: str = 'uint32',
    check: str = 'auto',
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_pack_tensors(
    tensors: Sequence[tf.Tensor],
    width: tf.Tensor,
    num_parts: int = 1,
    name: str | None = None,
) -> tf.Tensor: ...


class _ParseExamples(NamedTuple):
    row_splits: list[tf.Tensor]
    list_splits: list[tf.Tensor]
    value_splits: list[tf.Tensor]
    values: list[tf.Tensor]
    found_kinds: tf.Tensor
    bad_rows: tf.Tensor
    faults: tf.Tensor


def lodestar_parse_examples(
    data: tf.Tensor,
    offset: tf.Tensor,
    names: tf.Tensor,
    kinds: tf.Tensor,
    nested: tf.Tensor,
    num_columns: int,
    name: str | None = None,
) -> _ParseExamples: ...


def lodestar_parse_multi_slot(
    text: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    name: str | None = None,
) -> list[tf.Tensor]: ...


class _PythonCallBegin(NamedTuple):
    same: list[tf.Tensor]
    call: tf.Tensor


def lodestar_python_call_begin(
    values: Sequence[tf.Tensor],
    name: str | None = None,
) -> _PythonCallBegin: ...


def lodestar_python_call_end(
    call: tf.Tensor,
    values: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_python_calls_stop(
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_python_result(
    error: tf.Tensor,
    values: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_raw_dataset(
    filenames: tf.Tensor,
    batch_size: tf.Tensor,
    num_parallel_files: tf.Tensor,
    shuffle_rows: tf.Tensor,
    seed: tf.Tensor,
    num_shards: tf.Tensor,
    shard_index: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    slot_kinds: Sequence[str] | Sequence[bytes],
    nnz_per_slot: Sequence[int],
    drop_remainder: bool = False,
    deterministic: bool = True,
    open_command: Sequence[str] | Sequence[bytes] = [],
    whole_files: bool = False,
    skip_errors: bool = False,
    skip_log: str = '',
    key_type: str = 'uint32',
    label_type: str = 'float',
    dense_type: str = 'float',
    key_offsets: Sequence[int] = [],
    num_samples: int = 0,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_record_memory_arrange(
    memory: tf.Tensor,
    order: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_commit(
    memory: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_create(
    memory: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    line_fields: Sequence[str] | Sequence[bytes] = [],
    drop_zeros: bool = True,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_dataset(
    memory: tf.Tensor,
    batch_size: tf.Tensor,
    num_queues: tf.Tensor,
    queue: tf.Tensor,
    seed: tf.Tensor,
    slot_names: Sequence[str] | Sequence[bytes],
    slot_types: Sequence[tf.DType],
    slot_shapes: Sequence[Any],
    slot_limits: Sequence[int],
    slot_weighs: Sequence[int],
    slot_used: Sequence[bool],
    output_types: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    line_fields: Sequence[str] | Sequence[bytes] = [],
    drop_remainder: bool = False,
    shuffle: bool = False,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_record_memory_discard(
    memory: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_encode(
    memory: tf.Tensor,
    samples: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_record_memory_forget(
    memory: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_global_shuffle(
    memory: tf.Tensor,
    seed: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_load(
    memory: tf.Tensor,
    filenames: tf.Tensor,
    num_parallel_files: tf.Tensor,
    num_shards: tf.Tensor,
    shard_index: tf.Tensor,
    open_command: Sequence[str] | Sequence[bytes] = [],
    pipe_command: Sequence[str] | Sequence[bytes] = [],
    preload: bool = False,
    skip_errors: bool = False,
    skip_log: str = '',
    name: str | None = None,
) -> tf.Operation | None: ...


class _RecordMemoryMergeByInsId(NamedTuple):
    merged: tf.Tensor
    too_few: tf.Tensor
    conflicting: tf.Tensor


def lodestar_record_memory_merge_by_ins_id(
    memory: tf.Tensor,
    min_size: tf.Tensor,
    keep_unmerged: bool,
    erase_duplicates: bool,
    name: str | None = None,
) -> _RecordMemoryMergeByInsId: ...


def lodestar_record_memory_receive(
    memory: tf.Tensor,
    pieces: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_release(
    memory: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _RecordMemorySize(NamedTuple):
    num_samples: tf.Tensor
    bytes: tf.Tensor


def lodestar_record_memory_size(
    memory: tf.Tensor,
    name: str | None = None,
) -> _RecordMemorySize: ...


def lodestar_record_memory_slots_shuffle(
    memory: tf.Tensor,
    slots: tf.Tensor,
    seed: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_record_memory_wait_preload(
    memory: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_release_resource(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_release_server(
    program: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_release_turn(
    turn: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _SequenceConcat(NamedTuple):
    rows: tf.Tensor
    row_splits: tf.Tensor


def lodestar_sequence_concat(
    values: Sequence[tf.Tensor],
    lods: Sequence[tf.Tensor],
    name: str | None = None,
) -> _SequenceConcat: ...


def lodestar_sequence_concat_gradient(
    gradient: tf.Tensor,
    row_splits: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_sequence_context(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    start: int,
    size: int,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_sequence_context_gradient(
    gradient: tf.Tensor,
    row_splits: tf.Tensor,
    start: int,
    size: int,
    name: str | None = None,
) -> tf.Tensor: ...


class _SequenceExpand(NamedTuple):
    expanded: tf.Tensor
    expanded_splits: tf.Tensor


def lodestar_sequence_expand(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    ref_splits: tf.Tensor,
    name: str | None = None,
) -> _SequenceExpand: ...


def lodestar_sequence_expand_as(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_sequence_expand_gradient(
    gradient: tf.Tensor,
    row_splits: tf.Tensor,
    ref_splits: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _SequencePad(NamedTuple):
    padded: tf.Tensor
    lengths: tf.Tensor


def lodestar_sequence_pad(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    maxlen: tf.Tensor,
    name: str | None = None,
) -> _SequencePad: ...


class _SequencePool(NamedTuple):
    pooled: tf.Tensor
    index: tf.Tensor


def lodestar_sequence_pool(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    pad_value: tf.Tensor,
    combiner: str = 'sum',
    name: str | None = None,
) -> _SequencePool: ...


def lodestar_sequence_pool_gradient(
    gradient: tf.Tensor,
    row_splits: tf.Tensor,
    index: tf.Tensor,
    num_rows: tf.Tensor,
    combiner: str = 'sum',
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_sequence_softmax(
    values: tf.Tensor,
    row_splits: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_sequence_softmax_gradient(
    probabilities: tf.Tensor,
    gradient: tf.Tensor,
    row_splits: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _SequenceUnpad(NamedTuple):
    values: tf.Tensor
    row_splits: tf.Tensor


def lodestar_sequence_unpad(
    padded: tf.Tensor,
    lengths: tf.Tensor,
    name: str | None = None,
) -> _SequenceUnpad: ...


def lodestar_settle_updates(
    log: tf.Tensor,
    committed: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_shuffled_numbers(
    count: tf.Tensor,
    seed: tf.Tensor,
    begin: tf.Tensor,
    end: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_skip_log_add(
    log: tf.Tensor,
    message: tf.Tensor,
    count: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


def lodestar_skip_log_forget(
    log: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _SkipLogRead(NamedTuple):
    count: tf.Tensor
    messages: tf.Tensor


def lodestar_skip_log_read(
    log: tf.Tensor,
    name: str | None = None,
) -> _SkipLogRead: ...


class _SnapshotApply(NamedTuple):
    written: tf.Tensor
    removed: tf.Tensor


def lodestar_snapshot_apply(
    tables: Sequence[tf.Tensor],
    files: tf.Tensor,
    file_tables: tf.Tensor,
    parts: tf.Tensor,
    base: tf.Tensor,
    listed: tf.Tensor,
    optimizer_slots: str = 'require',
    name: str | None = None,
) -> _SnapshotApply: ...


def lodestar_snapshot_base(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _SnapshotBegin(NamedTuple):
    snapshot: tf.Tensor
    whole: tf.Tensor
    steps: tf.Tensor
    dims: tf.Tensor
    dtypes: tf.Tensor
    optimizers: tf.Tensor
    num_slots: tf.Tensor
    slot_names: tf.Tensor


def lodestar_snapshot_begin(
    tables: Sequence[tf.Tensor],
    bases: tf.Tensor,
    name: str | None = None,
) -> _SnapshotBegin: ...


def lodestar_snapshot_crc(
    data: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_snapshot_end(
    snapshot: tf.Tensor,
    base: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _SnapshotFileCrc(NamedTuple):
    bytes: tf.Tensor
    crc: tf.Tensor


def lodestar_snapshot_file_crc(
    path: tf.Tensor,
    name: str | None = None,
) -> _SnapshotFileCrc: ...


def lodestar_snapshot_follower(
    folder: str,
    tables: Sequence[str] | Sequence[bytes],
    weights: Sequence[str] | Sequence[bytes],
    container: str = '',
    shared_name: str = '',
    poll_seconds: float = 0,
    id_tables: Sequence[str] | Sequence[bytes] = [],
    vocabularies: Sequence[str] | Sequence[bytes] = [],
    digests: Sequence[str] | Sequence[bytes] = [],
    schema: str = '',
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_snapshot_follower_refresh(
    follower: tf.Tensor,
    own: Sequence[tf.Tensor],
    name: str | None = None,
) -> tf.Tensor: ...


def lodestar_snapshot_follower_resources(
    follower: tf.Tensor,
    own: Sequence[tf.Tensor],
    name: str | None = None,
) -> list[tf.Tensor]: ...


class _SnapshotFollowerStats(NamedTuple):
    version: tf.Tensor
    step: tf.Tensor
    snapshot_time: tf.Tensor
    seconds_since_update: tf.Tensor
    updates: tf.Tensor
    full_updates: tf.Tensor
    failures: tf.Tensor
    last_error: tf.Tensor


def lodestar_snapshot_follower_stats(
    follower: tf.Tensor,
    name: str | None = None,
) -> _SnapshotFollowerStats: ...


def lodestar_snapshot_install(
    loaded: tf.Tensor,
    name: str | None = None,
) -> tf.Operation | None: ...


class _SnapshotLoad(NamedTuple):
    loaded: tf.Tensor
    rows: tf.Tensor


def lodestar_snapshot_load(
    tables: Sequence[tf.Tensor],
    files: tf.Tensor,
    file_tables: tf.Tensor,
    file_parts: tf.Tensor,
    parts: tf.Tensor,
    bases: tf.Tensor,
    listed: tf.Tensor,
    optimizer_slots: str = 'require',
    name: str | None = None,
) -> _SnapshotLoad: ...


class _SnapshotMerge(NamedTuple):
    rows: tf.Tensor
    bytes: tf.Tensor
    crc: tf.Tensor


def lodestar_snapshot_merge(
    files: tf.Tensor,
    out: tf.Tensor,
    label: tf.Tensor,
    listed: tf.Tensor,
    name: str | None = None,
) -> _SnapshotMerge: ...


def lodestar_snapshot_read_blobs(
    path: tf.Tensor,
    listed: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _SnapshotReadBlock(NamedTuple):
    kind: tf.Tensor
    count: tf.Tensor
    payload: tf.Tensor
    next: tf.Tensor


def lodestar_snapshot_read_block(
    path: tf.Tensor,
    offset: tf.Tensor,
    name: str | None = None,
) -> _SnapshotReadBlock: ...


def lodestar_snapshot_table(
    handle: tf.Tensor,
    name: str | None = None,
) -> tf.Tensor: ...


class _SnapshotVerifyFile(NamedTuple):
    bytes: tf.Tensor
    crc: tf.Tensor
    rows: tf.Tensor
    removed: tf.Tensor


def lodestar_snapshot_verify_file(
    path: tf.Tensor,
    name: str | None = None,
) -> _SnapshotVerifyFile: ...


class _SnapshotWrite(NamedTuple):
    rows: tf.Tensor
    removed: tf.Tensor
    bytes: tf.Tensor
    crcs: tf.Tensor


def lodestar_snapshot_write(
    snapshot: tf.Tensor,
    paths: tf.Tensor,
    labels: tf.Tensor,
    name: str | None = None,
) -> _SnapshotWrite: ...


class _SnapshotWriteBlobs(NamedTuple):
    bytes: tf.Tensor
    crc: tf.Tensor


def lodestar_snapshot_write_blobs(
    path: tf.Tensor,
    blobs: tf.Tensor,
    label: tf.Tensor,
    name: str | None = None,
) -> _SnapshotWriteBlobs: ...


def lodestar_unpack_tensors(
    packed: tf.Tensor,
    T: Sequence[tf.DType],
    output_shapes: Sequence[Any],
    num_parts: int = 1,
    name: str | None = None,
) -> list[tf.Tensor]: ...


def lodestar_update_log(
    container: str = '',
    shared_name: str = '',
    name: str | None = None,
) -> tf.Tensor: ...
