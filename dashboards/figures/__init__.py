"""Pure figures: data in, validated Plotly figures (or inline SVG) out.

Colours are CSS variables (`var(--line)`); the page's script resolves them, so one figure serves light and dark.
Lines, not clouds: plotly.js draws markers ten times slower, so they stand only where something happened, and more
than `MAX_POINTS` figures are thinned without losing an extreme or a marked point.
"""

from dashboards.figures.base import MAX_POINTS
from dashboards.figures.evidence import SampleSide, posterior_figure, samples_figure
from dashboards.figures.history import ChartChange, ChartEarlier, ChartFailure, ChartPoint, series_figure, thin
from dashboards.figures.sparkline import belief_bars, sparkline

__all__ = [
    "MAX_POINTS",
    "ChartChange",
    "ChartEarlier",
    "ChartFailure",
    "ChartPoint",
    "SampleSide",
    "belief_bars",
    "posterior_figure",
    "samples_figure",
    "series_figure",
    "sparkline",
    "thin",
]
