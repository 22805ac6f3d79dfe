"""The authors' API: steps, gates, workflows, and the context that a body gets."""
