"""Worker processes: started in advance, given one session each, watched until they end."""
