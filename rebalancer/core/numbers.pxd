cpdef long long truncate(double value) except? -1
cpdef long long round_half_up(double value) except? -1
