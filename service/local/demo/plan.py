"""What is planted where: 40 honest commits in ten pushes, three of which change how fast a kernel is.

The starting point is the bundled suite with one thing undone (the MoE layer is built for the debugger), so that the
history can do it. Every subject line says what a developer would say; none says what it costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from service.local.demo.edits import Append, Edit, Move, RenameWord, Replace, SetMacro

GEMM = "kernels_under_test/gemm/gemm_f32.c"
ATTENTION = "kernels_under_test/attention/attention_f32.c"
MOE = "kernels_under_test/moe/moe_f32.c"
MOE_BINDING = "kernels_under_test/moe/moe_f32.py"
MOE_SOURCES = 'sources=("moe_f32.c",))'
MOE_DEBUGGED = 'sources=("moe_f32.c",), flags=("-Og",))'


class Planted(StrEnum):
    """What a commit really does to the numbers."""

    NOTHING = "nothing"
    REGRESSION = "regression"
    IMPROVEMENT = "improvement"
    BROKEN_BUILD = "broken_build"
    WRONG_RESULT = "wrong_result"


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """One commit on the main line; with a `side` branch it is the merge of that branch and has no edits of its own."""

    subject: str
    edits: tuple[Edit, ...] = ()
    planted: Planted = Planted.NOTHING
    family: str | None = None  # whose series move, for REGRESSION and IMPROVEMENT
    side: tuple[PlannedCommit, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class PlannedPush:
    """Commits that arrive together, announced by one webhook."""

    commits: tuple[PlannedCommit, ...]


# What the bundled suite looks like before the first commit: undone here, done by the history below.
PREPARATION: tuple[Edit, ...] = (Replace(MOE_BINDING, MOE_SOURCES, MOE_DEBUGGED),)


def docs(subject: str, text: str, path: str = "README.md") -> PlannedCommit:
    """A commit that touches no kernel."""
    return PlannedCommit(subject, (Append(path, text),))


def rename(subject: str, path: str, old: str, new: str) -> PlannedCommit:
    """A refactoring with identical machine code: an internal name changes."""
    return PlannedCommit(subject, (RenameWord(path, old, new),))


PLAN: tuple[PlannedPush, ...] = (
    PlannedPush(
        (
            PlannedCommit("Add GEMM, attention and MoE kernels for the CPU"),
            docs("Say what is in this repository", "# Kernels\n\nGEMM, attention and a MoE layer in portable C.\n"),
            rename("gemm: call the smaller of two numbers by its name", GEMM, "least", "smaller_of"),
        )
    ),
    PlannedPush(
        (
            docs("Describe how shapes are chosen", "\n## Shapes\n\nPrefill chunks, decode batches, ragged ends.\n"),
            rename("attention: name the accumulator for what it holds", ATTENTION, "gathered", "weighted_values"),
            docs("Add notes for contributors", "# Contributing\n\nOne kernel, one file.\n", "CONTRIBUTING.md"),
            rename("moe: spell out what choose() chooses", MOE, "choose", "choose_experts"),
        )
    ),
    PlannedPush(
        (
            rename("gemm: the panel is packed from weights", GEMM, "pack_panel", "pack_weights"),
            docs("Fix a heading", "\n## Numbers\n\nSingle precision, row-major.\n"),
            rename("attention: soften() is a softmax", ATTENTION, "soften", "softmax_block"),
            rename("moe: sizes is a type, say so", MOE, "sizes", "layer_sizes"),
        )
    ),
    PlannedPush(
        (
            docs("List the compilers in use", "\n## Compilers\n\nGCC 12 or newer.\n"),
            PlannedCommit(
                "gemm: hoist the row stride out of the loop",
                (Replace(GEMM, "float *rows = workspace + KC * NC + ", "float *rows = workspace + panel_floats + "),),
                Planted.BROKEN_BUILD,
            ),
            PlannedCommit(
                "gemm: back out the stride change, it needs more thought",
                (Replace(GEMM, "float *rows = workspace + panel_floats + ", "float *rows = workspace + KC * NC + "),),
            ),
            PlannedCommit(
                "gemm: use a narrower register tile to shorten the unrolled loop",
                (SetMacro(GEMM, "MR", 4),),
                Planted.REGRESSION,
                "gemm",
            ),
            docs("Mention the packed layout", "\nWeights are packed once per panel.\n", "CONTRIBUTING.md"),
        )
    ),
    PlannedPush(
        (
            rename("gemm: rename the edge buffer", GEMM, "edge", "border"),
            PlannedCommit(
                "Merge branch 'routing-names'",
                side=(
                    rename("moe: name the sort for its key", MOE, "sort_by_expert", "group_by_expert"),
                    docs("Describe the routing", "\n## Routing\n\nSoftmax over the chosen logits.\n"),
                ),
            ),
            docs("Say how to run one kernel", "\nRun one kernel with `kernelwatch kernels run`.\n", "CONTRIBUTING.md"),
        )
    ),
    PlannedPush(
        (
            rename("attention: visible keys are a count", ATTENTION, "visible", "visible_keys"),
            docs("Note the precision of exp2", "\nexp2 is a polynomial of degree six.\n", "CONTRIBUTING.md"),
            PlannedCommit(
                "moe: build optimised, a flag for the debugger was left in",
                (Replace(MOE_BINDING, MOE_DEBUGGED, MOE_SOURCES),),
                Planted.IMPROVEMENT,
                "moe",
            ),
            rename("moe: parts are expert outputs", MOE, "parts", "expert_outputs"),
            docs("Link the paper on online softmax", "\nMilakov and Gimelshein, arXiv:1805.02867.\n"),
        )
    ),
    PlannedPush(
        (
            PlannedCommit(
                "attention: keep the source beside its idea",
                (
                    Move(ATTENTION, "kernels_under_test/attention/online_f32.c"),
                    Replace(
                        "kernels_under_test/attention/attention_f32.py", '("attention_f32.c",)', '("online_f32.c",)'
                    ),
                ),
            ),
            docs("Sort the list of shapes", "\nShapes are sorted by family.\n"),
            PlannedCommit(
                "moe: leave the weights of the chosen experts as they are",
                (
                    Replace(
                        MOE,
                        "    for (long j = 0; j < z.topk; j++) weights[j] /= total;\n",
                        "    (void)total;\n",
                    ),
                ),
                Planted.WRONG_RESULT,
                "moe",
            ),
        )
    ),
    PlannedPush(
        (
            PlannedCommit(
                "moe: normalise the weights again, the outputs were off",
                (
                    Replace(
                        MOE,
                        "    (void)total;\n",
                        "    for (long j = 0; j < z.topk; j++) weights[j] /= total;\n",
                    ),
                ),
            ),
            rename("gemm: one tile, one name", GEMM, "tile", "register_tile"),
            PlannedCommit(
                "attention: smaller blocks of keys, so that scores stay in the first-level cache",
                (SetMacro("kernels_under_test/attention/online_f32.c", "BK", 32),),
                Planted.REGRESSION,
                "attention",
            ),
            docs("Explain the block size", "\nA block of keys is one pass of the running maximum.\n"),
            rename("moe: activate is a SiLU", MOE, "activate", "apply_silu"),
        )
    ),
    PlannedPush(
        (
            docs("Thank the testers", "\n## Thanks\n\nTo everybody who measured.\n"),
            rename("gemm: rows of A are activations", GEMM, "pack_rows", "pack_activations"),
            docs("State the licence", "\n## Licence\n\nApache-2.0.\n"),
        )
    ),
    PlannedPush(
        (
            rename("moe: a product is a grouped product", MOE, "product", "grouped_product"),
            docs("Add a list of known limits", "# Limits\n\nHead sizes are multiples of 32.\n", "LIMITS.md"),
            rename(
                "attention: attend() takes one tile of queries",
                "kernels_under_test/attention/online_f32.c",
                "attend",
                "attend_tile",
            ),
        )
    ),
)


def all_commits(plan: tuple[PlannedPush, ...] = PLAN) -> Iterator[PlannedCommit]:
    """Every planned commit, side branches included, in the order in which they are made."""
    for push in plan:
        for commit in push.commits:
            yield from commit.side
            yield commit


def must_be_found(plan: tuple[PlannedPush, ...] = PLAN) -> tuple[PlannedCommit, ...]:
    """The commits that the service has to name: all others must stay unnamed."""
    return tuple(c for c in all_commits(plan) if c.planted in {Planted.REGRESSION, Planted.IMPROVEMENT})
