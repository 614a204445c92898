"""What the importers of all frameworks share: reading scripts and configurations, and facts as a plan."""
