"""`sympformer play`: a flow that runs live in the browser."""
