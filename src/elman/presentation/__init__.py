"""What people see of a training: lines while it runs, a report and a card in the end."""
