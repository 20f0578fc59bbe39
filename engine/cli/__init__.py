"""What the commands of bench and train have in common."""
