"""Settings: TOML and ``key=value`` in, validated sections out; all mistakes are reported at once."""

from elman.config.checking import changed, validate
from elman.config.describing import describe
from elman.config.ranges import Among, Around, Near, Numbers, Range, Search, Value, Values
from elman.config.reading import (
    check_read,
    given_keys,
    has_key,
    lookup,
    open_options,
    options_of,
    tasks_that_read,
    why_unread,
)
from elman.config.sections import (
    Config,
    DataSettings,
    DecodingSettings,
    EvaluationSettings,
    MarkerSettings,
    ModelSettings,
    NetworkSettings,
    RecurrentSettings,
    Section,
    TextSettings,
    TrainingSettings,
    VocabularySettings,
    part_names,
    setting,
    strategy_name,
)
from elman.config.toml import Tables, merge, parse_settings, parse_toml, put, read_toml, to_toml, toml_value
from elman.config.values import (
    Count,
    Files,
    NonNegative,
    OneOf,
    Options,
    PartOf,
    Positive,
    Rate,
    ReadIf,
    Share,
    Whole,
    Widths,
)
