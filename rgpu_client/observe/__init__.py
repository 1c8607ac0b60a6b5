"""The operator's views of a server: `rgpu top` and `rgpu quota report`."""
