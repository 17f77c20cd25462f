"""Who adds and removes machines: the contract of provider plug-ins, and the groups that labels alone show."""
