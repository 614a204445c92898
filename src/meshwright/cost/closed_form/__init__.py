"""Step time of arrays of plans in closed form: pipeline, exposed communication, optimizer."""
