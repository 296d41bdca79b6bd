"""One file for each part: ``CURRENTS``, its currents by organisation preset and data rate in MT/s."""
