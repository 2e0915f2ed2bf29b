"""VariableTrackers as values to show: what each stands for, with the changes of the traced code laid over."""
