package allreduce

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gradnic/internal/npy"
)

// Names of the element types on the command line and, for float32, in the table
// and in JSON, where NCCL's names stand.
const (
	typeInt32   = "int32"
	typeFloat32 = "float32"
)

func ncclName(t string) string {
	if t == typeFloat32 {
		return "float"
	}
	return t
}

// rankMark in a file's name stands for the rank.
const rankMark = "{rank}"

// rankedName is the name of a rank's file.
func rankedName(pattern string, rank int) string {
	return strings.ReplaceAll(pattern, rankMark, strconv.Itoa(rank))
}

// canHold says whether the directory of an output file is there, before time is spent on what it shall hold.
func canHold(path string) error {
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	if st, err := os.Stat(dir); err != nil {
		return fmt.Errorf("output file: %w", err)
	} else if !st.IsDir() {
		return fmt.Errorf("output file: %s is no directory", dir)
	}
	return nil
}

// typeOf tells what a file holds.
func typeOf(path string) (string, error) {
	_, err := npy.Load[float32](path)
	if err == nil {
		return typeFloat32, nil
	}
	if !errors.Is(err, npy.ErrType) {
		return "", err
	}
	if _, err := npy.Load[int32](path); err != nil {
		return "", err
	}
	return typeInt32, nil
}

// random makes rank's array of n elements: int32 over their whole range, float32
// from a normal distribution, as gradients nearly are.
func random[T npy.Element](seed uint64, rank, n int) []T {
	out := make([]T, n)
	fillRandom(out, seed, rank, n)
	return out
}

// fillRandom fills a slice of n elements of rank: integers over their whole range, floats from a normal distribution. Slices of
// uint16 are bfloat16.
func fillRandom(out any, seed uint64, rank, n int) {
	r := rand.New(rand.NewPCG(seed, uint64(rank)<<40^uint64(n)))
	switch v := out.(type) {
	case []int32:
		for i := range v {
			v[i] = int32(r.Uint32())
		}
	case []int64:
		for i := range v {
			v[i] = int64(r.Uint64())
		}
	case []int8:
		for i := range v {
			v[i] = int8(r.Uint32())
		}
	case []float32:
		for i := range v {
			v[i] = float32(r.NormFloat64())
		}
	case []float64:
		for i := range v {
			v[i] = r.NormFloat64()
		}
	case []uint16:
		for i := range v {
			v[i] = uint16(math.Float32bits(float32(r.NormFloat64())) >> 16)
		}
	}
}

// source gives the arrays of all ranks, of one size.
type source[T npy.Element] func(rank int) ([]T, error)

func fromFiles[T npy.Element](pattern string) source[T] {
	return func(rank int) ([]T, error) { return npy.Load[T](rankedName(pattern, rank)) }
}

func fromSeed[T npy.Element](seed uint64, n int) source[T] {
	return func(rank int) ([]T, error) { return random[T](seed, rank, n), nil }
}

// load takes own's array, and with all those of every rank, in order.
func (s source[T]) load(own, workers int, all bool) (mine []T, every [][]T, err error) {
	if mine, err = s(own); err != nil || !all {
		return mine, nil, err
	}
	for rank := range workers {
		v := mine
		if rank != own {
			if v, err = s(rank); err != nil {
				return nil, nil, fmt.Errorf("array of rank %d, to check the sum: %w", rank, err)
			}
		}
		if len(v) != len(mine) {
			return nil, nil, fmt.Errorf("rank %d has %d elements, rank %d has %d: all-reduce needs arrays of one length", rank, len(v), own, len(mine))
		}
		every = append(every, v)
	}
	return mine, every, nil
}
