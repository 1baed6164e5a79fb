"""What trainings print, one module a framework or a form of lines. All read line by line, and none knows another."""
