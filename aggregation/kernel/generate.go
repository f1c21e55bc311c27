package kernel

//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -isa avx2 -pkg kernel -out loops_avx2_amd64.s -stubs loops_avx2_amd64.go
//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -isa avx512 -pkg kernel -out loops_avx512_amd64.s -stubs loops_avx512_amd64.go
//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -isa any -pkg kernel -out prefetch_amd64.s -stubs prefetch_stub_amd64.go
//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -tables loops_tables_amd64.go
//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -layout params_layout.go
