"""What Koordinator's and Katalyst's users have on their pods, read as classes and promises of ours."""
