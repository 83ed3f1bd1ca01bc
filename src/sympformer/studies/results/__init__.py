"""What a comparison came to: its records, their statistics, and tables, plots and a page made from them."""
