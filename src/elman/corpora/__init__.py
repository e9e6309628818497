"""Built-in corpora: generated with a seed from grammars and from what every machine has."""

SHARED = ("base", "library")  # files that are no corpus
