"""Terminal output shared by the verbs and `fleet top`: options, tables, live views, words."""
