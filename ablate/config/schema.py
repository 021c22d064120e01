"""The typed shape of `conf/`: one dataclass a group; Hydra refuses other keys and other types.

A null number means "chosen from the other settings by `rules.resolve`", and the record shows what
was chosen. Nothing here imports torch: `--help` reads this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class CorpusSettings:
    kind: str = "synthetic"
    path: str | None = None
    text_field: str = "text"
    name: str | None = None
    config: str | None = None
    split: str = "train"
    revision: str | None = None
    streaming: bool = False
    document_rule: str = "rows"
    max_documents: int | None = None
    num_documents: int = 14_000
    word_order: str = "natural"
    seed: int = 0
    validation_fraction: float = 0.05
    jobs: int | None = None


@dataclass
class TokenizerSettings:
    kind: str = "wordpiece"
    vocab_size: int | None = None
    vocabulary: str = "auto"
    lowercase: bool = True
    path: str | None = None


@dataclass
class InputFormatSettings:
    name: str = "segment_pair"
    max_length: int = 64
    short_seq_prob: float = 0.1
    pairing: str = "auto"
    pair_sampling: str = "bert"
    document_boundary: str = "none"
    copies: int | None = None


@dataclass
class MaskingSettings:
    selection: str = "token"
    mask_rate: float = 0.15
    mask_rate_schedule: str = "constant"
    final_mask_rate: float | None = None
    mask_rate_step_at: float = 0.5
    prediction_rate: float | None = None
    budget_rule: str = "bernoulli"
    budget_base: str = "eligible"
    budget_rounding: str = "nearest"
    max_predictions_per_row: int | None = None
    overshoot: str = "stop"
    mask_replace_prob: float = 0.8
    random_replace_prob: float = 0.1
    corruption_unit: str = "token"
    random_candidates: str = "uniform"
    copies: int | None = None
    span_geometric_p: float = 0.2
    span_max_words: int = 10
    ngram_weights: list[float] = field(default_factory=lambda: [1.0, 0.5, 1 / 3])
    pmi_num_ngrams: int = 800_000
    pmi_max_words: int = 5
    pmi_min_count: int = 11


@dataclass
class EncoderSettings:
    kind: str = "native"
    path: str | None = None
    hf_config: str | None = None
    body: str = "transformer"
    embedding_size: int | None = None
    embedding_rule: str = "exact"
    shared_layers: str = "none"
    norm_position: str = "pre"
    norm_type: str = "layer"
    norm_eps: float = 1e-5
    norm_bias: bool = False
    position_embedding: str = "rope"
    mlp: str = "glu"
    glu_width: str = "parameter_matched"
    activation: str = "gelu"
    attention_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = True
    head_dense_bias: bool = False
    global_attention_every_n: int = 3
    local_attention: int = 128
    global_rope_theta: float = 160_000.0
    local_rope_theta: float = 10_000.0
    embedding_norm: bool = True
    first_layer_norm: bool = False
    final_norm: bool = True
    tie_word_embeddings: bool = True
    type_vocab_size: int = 0
    max_position_embeddings: int | None = None
    causal: bool = False
    dropout: float = 0.0
    init_scheme: str = "megatron"
    init_std: float | None = None


@dataclass
class SizeSettings:
    hidden_size: int = 64
    num_hidden_layers: int = 2
    num_attention_heads: int = 4
    intermediate_size: int = 256


@dataclass
class ObjectiveSettings:
    name: str = "mlm"


@dataclass
class OptimizerSettings:
    name: str = "adamw"
    learning_rate: float | None = None
    weight_decay: float = 0.01
    betas: list[float] = field(default_factory=lambda: [0.9, 0.98])
    eps: float = 1e-6
    gradient_clip: float = 1.0


@dataclass
class ScheduleSettings:
    name: str = "linear"
    warmup_fraction: float = 0.1
    final_fraction: float = 0.0


@dataclass
class BudgetSettings:
    clock: str = "tokens"
    amount: int = 3_000_000


@dataclass
class TrainerSettings:
    accelerator: str = "auto"
    devices: int = 1
    strategy: str = "auto"
    precision: str = "auto"
    threads: int | None = None
    global_batch_size: int = 16
    micro_batch_size: int | None = None
    num_workers: int = 0
    log_every: int = 50
    num_validations: int = 4
    validation_rows: int = 1_000
    checkpoint_every: int = 500
    progress_bar: bool = True


@dataclass
class FinetuneSettings:
    learning_rate: float | None = None
    batch_size: int = 32
    num_epochs: int = 6
    min_steps: int = 150
    max_steps: int | None = None
    schedule: str = "linear"
    warmup_fraction: float = 0.1
    weight_decay: float = 0.01
    layerwise_decay: float = 1.0
    adam_beta2: float = 0.999
    adam_eps: float = 1e-8
    gradient_clip: float | None = 1.0
    dropout: float = 0.1
    pooling: str | None = None
    head: str = "mlp"
    frozen: bool = False
    early_stopping: int | None = None
    evaluations_per_epoch: int = 1
    selection_fraction: float = 0.1
    max_train_examples: int | None = None
    max_scored_examples: int | None = None
    max_length: int | None = None
    num_seeds: int = 1


@dataclass
class EvaluationSettings:
    kind: str = "synthetic"
    path: str | None = None
    tasks: list[str] = field(default_factory=list)
    num_train_examples: int = 800
    num_validation_examples: int = 600
    pairs_per_paradigm: int = 60
    ngram_baseline: bool = True
    mlm_quality: bool = False
    predict_test: bool = False
    jobs: int | None = None
    threads: int = 1
    finetune: FinetuneSettings = field(default_factory=FinetuneSettings)
    per_task: dict[str, dict[str, Any]] | None = field(default_factory=dict)
    grid: dict[str, list[Any]] | None = field(default_factory=dict)
    grid_per_task: dict[str, dict[str, list[Any]]] | None = field(default_factory=dict)
    start_from: str | None = None
    start_from_tasks: list[str] = field(default_factory=lambda: ["rte", "mrpc", "stsb"])


@dataclass
class TrackingSettings:
    kind: str = "wandb"
    mode: str = "auto"
    project: str = "ablate"
    entity: str | None = None
    group: str | None = None
    tags: list[str] = field(default_factory=list)
    log_checkpoint: bool = False
    timeout: float = 25.0


@dataclass
class PathsSettings:
    runs_dir: str = "runs"
    cache_dir: str = "${oc.env:ABLATE_CACHE,${oc.env:HOME,.}/.cache/ablate}"
    reports_dir: str = "reports"


@dataclass
class ReplicateSettings:
    init: int = 0
    data: int = 0
    masks: int = 0


@dataclass
class Settings:
    """The root of the configuration."""

    seed: int = 0
    nsp: bool = False
    sop: bool = False
    attention_backend: str = "auto"
    arm: str | None = None
    force: bool = False
    replicate: ReplicateSettings = field(default_factory=ReplicateSettings)
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    input_format: InputFormatSettings = field(default_factory=InputFormatSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    encoder: EncoderSettings = field(default_factory=EncoderSettings)
    size: SizeSettings = field(default_factory=SizeSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    budget: BudgetSettings = field(default_factory=BudgetSettings)
    trainer: TrainerSettings = field(default_factory=TrainerSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    tracking: TrackingSettings = field(default_factory=TrackingSettings)
    paths: PathsSettings = field(default_factory=PathsSettings)
