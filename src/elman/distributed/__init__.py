"""Several processes that train one network: what they exchange, and who notices that one is gone."""
