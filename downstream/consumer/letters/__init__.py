"""Letters that an editor approves, and jobs that several machines' workers do once between them."""
