"""Looking inside a network: how far back its gradient reaches, measured, drawn and said."""
