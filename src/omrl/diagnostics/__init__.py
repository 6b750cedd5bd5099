"""What goes on inside a meta-trained run, measured: `omrl evaluate RUN --diagnose`."""
