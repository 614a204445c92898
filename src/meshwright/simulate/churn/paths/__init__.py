"""SkipPipe's paths: each micro-batch visits some of the stages, at nodes where it meets few others."""
