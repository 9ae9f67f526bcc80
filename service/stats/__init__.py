"""Pure statistics: summaries, change points, comparison, bisection. numpy and scipy only."""
