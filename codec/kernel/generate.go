package kernel

//go:generate go run -modfile=../../tools/go.mod -tags generate ./gen -pkg kernel -out kernels_amd64.s -stubs kernels_amd64.go
