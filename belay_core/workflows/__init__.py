"""What authors touch: steps, gates, workflows, and the context a body is given."""
