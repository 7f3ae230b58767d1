module j10ce.io/benchmarks

go 1.26.0

tool (
	j10ce.io/benchmarks/accept-all
	j10ce.io/benchmarks/floors
)
