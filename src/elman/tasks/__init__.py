"""Tasks: what is read, what is learned from it, how it is judged and used; one file a task."""

SHARED = (  # files that are no task
    "base",
    "beside",
    "buckets",
    "calibrating",
    "class2seq_writer",
    "classes",
    "classify_settings",
    "defaults",
    "examples",
    "generation",
    "lm_writer",
    "predictions",
    "seq2seq_evaluation",
    "seq2seq_settings",
    "seq2seq_writer",
    "statistics",
    "tag_settings",
    "withholding",
    "words",
)
