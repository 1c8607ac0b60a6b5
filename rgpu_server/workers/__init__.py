"""Worker processes: started warm, given one session each, watched until they end."""
