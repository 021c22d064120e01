"""Store + settings -> the LightningDataModule: training steps, and the same validation for all.

The training side is `steps.StepLoader` (one item an optimizer step); the validation side is fixed
by the corpus: same rows, same masks, whatever the arm and the seed.
"""

from __future__ import annotations

import copyreg
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
from torch.utils.data import DataLoader

from ablate.inputs.batches import Batch
from ablate.inputs.candidates import by_frequency, count_tokens
from ablate.inputs.causal_rows import NextTokenRows
from ablate.inputs.formats import plan_epoch
from ablate.inputs.masked_rows import MaskedRows, check_words
from ablate.inputs.masking import MaskingPolicy
from ablate.inputs.plan import Plan
from ablate.inputs.pmi import build_list
from ablate.inputs.steps import RowSource, StepDataset, StepLoader, StepSequence
from ablate.tokens.store import TokenStore
from ablate.tokens.tokenizer import Tokenizer


class PretrainingData(pl.LightningDataModule):
    """Training steps of an arm, and validation that is the same for every arm.

    Validation rows are `single_document` rows of the held-out documents under 15% all-[MASK], once
    by token and once by whole word, drawn from `validation_seed` (the corpus's) and not the run's.
    With the objective `clm` nothing is masked: the same rows are validated on their next tokens, as
    `clm` and under no other name, since this loss is not to be compared with a masked one.

    Raises:
        ValueError: a setting that the data cannot serve (see `formats`, `masking`, `rows`).
    """

    def __init__(
        self,
        store: TokenStore,
        tokenizer: Tokenizer,
        policy: MaskingPolicy,
        *,
        input_format: str,
        max_length: int,
        short_seq_prob: float,
        validation_threshold: int,
        validation_seed: int,
        validation_rows: int,
        clock: str,
        amount: int,
        global_batch_size: int,
        micro_batch_size: int,
        num_workers: int,
        seed: int,
        cache_dir: str | Path,
        pairing: str = "next_or_random",
        pair_sampling: str = "bert",
        document_boundary: str = "none",
        copies: int | None = None,
        replicate_data: int = 0,
        replicate_masks: int = 0,
        rank: int = 0,
        world: int = 1,
        objective: str = "mlm",
    ) -> None:
        super().__init__()
        self.store, self.tokenizer, self.max_length = store, tokenizer, max_length
        self.micro_batch_size, self.num_workers = micro_batch_size, num_workers
        self.rank, self.world = rank, world
        training, held_out = store.split(validation_threshold)

        plan_of_epoch: Any = functools.partial(  # can be pickled, for `ddp_spawn`
            _plan_of_epoch,
            store,
            training,
            input_format=input_format,
            max_length=max_length,
            seed=seed,
            replicate=replicate_data,
            short_seq_prob=short_seq_prob,
            pairing=pairing,
            pair_sampling=pair_sampling,
            document_boundary=document_boundary,
            copies=copies,
        )

        self._budget = {"clock": clock, "amount": amount, "global_batch_size": global_batch_size}
        self._plan_of_epoch = plan_of_epoch
        self.policy, self.cache_dir, self._training = policy, cache_dir, training
        self._seed, self._replicate_masks = seed, replicate_masks
        check_words(policy.selection, tokenizer)
        self.validation_plan = plan_epoch(
            store,
            held_out,
            input_format="single_document",
            max_length=max_length,
            seed=validation_seed,
            epoch=0,
        )
        self.validation_rows = min(validation_rows, self.validation_plan.num_rows)
        self.validation_seed = validation_seed
        tokens = np.diff(store.document_starts)[held_out].sum()
        self.validation_bytes_per_token = float(store.document_bytes[held_out].sum() / tokens)
        selections = ("token", "whole_word") if tokenizer.knows_words else ("token",)
        self.objective, self._selections = objective, selections
        masked = tuple(f"{selection}_mask" for selection in selections)
        self.validation_names = ("clm",) if objective == "clm" else masked

    def setup(self, stage: str) -> None:
        """This process's part of each step is known once the trainer has started its ranks."""
        if self.trainer is not None:
            self.rank, self.world = self.trainer.global_rank, self.trainer.world_size

    @functools.cached_property
    def rows(self) -> MaskedRows | NextTokenRows:
        """The source of training rows; what it counts in the training documents is counted here."""
        if self.objective == "clm":
            return NextTokenRows(self.store, self.tokenizer)
        policy, candidates, ngrams = self.policy, None, None
        if policy.random_candidates == "frequency":
            counts = count_tokens(self.store, self._training, self.tokenizer.vocab_size)
            candidates = by_frequency(self.tokenizer.ordinary_ids, counts)
        if policy.selection == "pmi":
            ngrams = build_list(
                self.store,
                self._training,
                num_ngrams=policy.pmi_num_ngrams,
                max_words=policy.pmi_max_words,
                min_count=policy.pmi_min_count,
                cache_dir=self.cache_dir,
                special_ids=self.tokenizer.special_ids,
            )
        return MaskedRows(
            self.store,
            self.tokenizer,
            policy,
            max_length=self.max_length,
            candidates=candidates,
            ngrams=ngrams,
            seed=self._seed,
            replicate=self._replicate_masks,
        )

    @functools.cached_property
    def steps(self) -> StepSequence:
        """The steps of the budget; planned on first use."""
        return StepSequence(self._plan_of_epoch, **self._budget)  # type: ignore[arg-type]

    @functools.cached_property
    def validation_batches(self) -> list[list[Batch]]:
        """One list of batches for each of `validation_names`; drawn once, kept."""
        tokens = 1024 if self.objective == "clm" else 4096  # of a batch: there all have logits
        size = max(self.micro_batch_size, tokens // self.max_length)
        chunks = [
            np.arange(begin, min(begin + size, self.validation_rows))
            for begin in range(0, self.validation_rows, size)
        ]
        return [
            [rows.batch(self.validation_plan, c, epoch=0)[0] for c in chunks]
            for rows in self._validation_sources()
        ]

    def _validation_sources(self) -> list[RowSource]:
        if self.objective == "clm":
            return [NextTokenRows(self.store, self.tokenizer)]
        return [
            MaskedRows(
                self.store,
                self.tokenizer,
                MaskingPolicy(
                    selection, mask_rate=0.15, mask_replace_prob=1.0, random_replace_prob=0.0
                ),
                max_length=self.max_length,
                seed=self.validation_seed,
                stream="validation",
            )
            for selection in self._selections
        ]

    def train_dataloader(self) -> StepLoader:
        dataset = StepDataset(
            self.steps,
            self.rows,
            micro_batch_size=self.micro_batch_size,
            rank=self.rank,
            world=self.world,
        )
        return StepLoader(dataset, num_workers=self.num_workers)

    def val_dataloader(self) -> list[DataLoader]:
        """Whole batches dealt out to the ranks, so that their composition is that of one process.

        Where they do not come out even a rank gets None: Lightning leaves out validation, and its
        hooks, on a rank that has no batch, and the others would wait for it.
        """
        return [
            DataLoader(self._dealt(batches), batch_size=None)  # type: ignore[arg-type]
            for batches in self.validation_batches
        ]

    def _dealt(self, batches: list[Batch]) -> list[Batch | None]:
        own: list[Batch | None] = [*batches[self.rank :: self.world]]
        return own + [None] * (-(-len(batches) // self.world) - len(own))

    def statistics(self) -> dict[str, Any]:
        """Derived quantities for the record: the first epoch's rows, steps and epochs of budget."""
        found: dict[str, Any] = {**self.steps.plan(0).statistics, "total_steps": len(self.steps)}
        if self.rows.ngrams is not None:
            found["collocations"] = {"hash": self.rows.ngrams.hash, **self.rows.ngrams.meta}
        return {**found, "epochs": self.steps.num_epochs}


def _plan_of_epoch(store: TokenStore, training: np.ndarray, epoch: int, **options: Any) -> Plan:
    return plan_epoch(store, training, epoch=epoch, **options)


def _reopened(store: TokenStore) -> tuple[type[TokenStore], tuple[Path]]:
    return TokenStore, (store.folder,)


copyreg.pickle(TokenStore, _reopened)  # another process maps the arrays again, and copies nothing
