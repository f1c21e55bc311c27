package kernel

import "gradnic/internal/cpu"

// level is the vector level in force. Only tests change it.
var level = cpu.Level()

func need(ok bool, what string) {
	if !ok {
		panic("codec/kernel: " + what)
	}
}
