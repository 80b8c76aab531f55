"""What the verbs share: options, tables, live views, words."""
