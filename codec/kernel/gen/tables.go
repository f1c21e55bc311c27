//go:build generate

package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/operand"
)

const (
	absMask      = 1<<31 - 1
	canonicalNaN = 0x7fc00000
)

var (
	stepTable   operand.Mem // 2^(e-133)
	scaleTable  operand.Mem // 2^(x-127)
	laneOrder   operand.Mem // undoes what packing 4 vectors does to the order
	nibbleHalf  operand.Mem // E2M1 code to the upper byte of its binary16
	nibbleMerge operand.Mem // 1, 16, 1, 16 ..
	counterStep operand.Mem // 0 .. 15
	signShifts  operand.Mem // 31, 30 .. 0
	oddLanes    [3]operand.Mem
)

func words(name string, v []uint32) operand.Mem {
	m := GLOBL(name, RODATA|NOPTR)
	for i, w := range v {
		DATA(4*i, operand.U32(w))
	}
	return m
}

func powers(offset int) []uint32 {
	t := make([]uint32, 256)
	for i := range 255 {
		t[i] = math.Float32bits(float32(math.Ldexp(1, i+offset)))
	}
	t[255] = canonicalNaN
	return t
}

func tables() {
	stepTable = words("stepTable", powers(-133))
	scaleTable = words("scaleTable", powers(-127))
	laneOrder = words("laneOrder", []uint32{0, 4, 1, 5, 2, 6, 3, 7})
	nibbleHalf = words("nibbleHalf", []uint32{0x3e3c3800, 0x46444240, 0xbebcb880, 0xc6c4c2c0})
	merge := make([]uint32, 8)
	for i := range merge {
		merge[i] = 0x10011001
	}
	nibbleMerge = words("nibbleMerge", merge)
	counterStep = words("counterStep", []uint32{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15})
	shifts := make([]uint32, 32)
	for i := range shifts {
		shifts[i] = uint32(31 - i)
	}
	signShifts = words("signShifts", shifts)
	for s := range oddLanes {
		v := make([]uint32, 8)
		for i := range v {
			if i>>s&1 == 1 {
				v[i] = 1 << 31
			}
		}
		oddLanes[s] = words([]string{"oddLanes1", "oddLanes2", "oddLanes4"}[s], v)
	}
}
