"""What is measured on the CPU, and how."""
