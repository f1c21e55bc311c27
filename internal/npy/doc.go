// Package npy reads and writes NumPy's array file format (versions 1.0 and 2.0)
// for the element types that all-reduces carry, little-endian: float32 ("<f4"),
// int32 ("<i4"), and of the native protocol float64 ("<f8"), float16 ("<f2"),
// int64 ("<i8") and int8 ("|i1"). NumPy has no bfloat16.
//
// Arrays of any shape are accepted and flattened in the order of the file, since
// a sum over workers does not look at shape; the shape is kept in [Header] for
// who wants it. Files written here are one-dimensional, version 1.0, with the
// data aligned to 64 bytes, and are read by numpy.load.
//
// Files are untrusted. A header is parsed as the literal it must be and never
// evaluated; its length is bounded by [MaxHeader]; and memory is taken as data
// arrives, so that a header that claims 2^60 elements costs nothing but an error.
//
// The format is described in NEP 1 and in numpy.lib.format.
package npy
