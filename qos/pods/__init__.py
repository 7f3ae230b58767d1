"""What one pod may expect: from its policy, its class, and what peers' labels and annotations say."""
