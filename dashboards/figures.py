"""Pure figures: data in, Plotly figures (as plain dictionaries) out."""
