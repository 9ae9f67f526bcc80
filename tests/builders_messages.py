"""One message to look at, for the golden files."""

from __future__ import annotations

from dataclasses import replace

from service.domain.message import Chart, ChartPoint, CommitLine, Message, SeriesLine
from service.domain.states import Direction, NotificationEvent

OPENED = Message(
    key="kernelwatch-1-7",
    event=NotificationEvent.OPENED,
    regression_id=3,
    repository="acme/kernels",
    direction=Direction.REGRESSION,
    severity="high",
    effect=0.1432,
    effect_low=0.1301,
    effect_high=0.1566,
    good=CommitLine(sha="a" * 40, subject="Tidy the tests", author="Ada"),
    bad=CommitLine(sha="b" * 40, subject="Rename a helper", author="Bo"),
    candidates=4,
    culprit=None,
    probability=None,
    series=(
        SeriesLine(
            workload="gemm_f32[k=384,m=384,n=384]", effect=0.1432, effect_low=0.1301, effect_high=0.1566, before_s=1e-3
        ),
        SeriesLine(
            workload="gemm_f32[k=512,m=97,n=129]", effect=0.1203, effect_low=0.1099, effect_high=0.1310, before_s=2e-4
        ),
    ),
    series_total=40,
    device_s=12.5,
    note=None,
    url="http://127.0.0.1:8080/regressions/3",
)
ATTRIBUTED = replace(
    OPENED,
    key="kernelwatch-1-8",
    event=NotificationEvent.ATTRIBUTED,
    culprit=CommitLine(sha="c" * 40, subject="Use <four> rows & spill less", author="Cy <cy@example.org>"),
    probability=0.9987,
)
CHARTED = replace(
    ATTRIBUTED,
    chart=Chart(
        workload="gemm_f32[k=384,m=384,n=384]",
        direction=Direction.REGRESSION,
        effect=0.1432,
        points=tuple(
            ChartPoint(f"{k:02d}" + "c" * 38, (1.143e-3 if k >= 14 else 1e-3) * (1 + 0.004 * ((k * 7) % 5 - 2)), 4e-6)
            for k in range(22)
        ),
        step=14,
    ),
)
