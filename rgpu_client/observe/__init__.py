"""What an operator looks at: `rgpu top` and `rgpu quota report`."""
