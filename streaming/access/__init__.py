"""Who may come in and what they may use: keys, names, sites, quotas; and where we ourselves may call."""
