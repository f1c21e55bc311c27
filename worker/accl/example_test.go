package accl_test

import (
	"fmt"

	"gradnic/wire/inet"
	"gradnic/worker/accl"
)

// A rank in memory against another implementation, here another rank in memory: frames go from one to the other until
// both are silent.
func ExampleResponder() {
	ranks := []accl.Peer{
		{IP: inet.Addr{10, 10, 10, 1}, MAC: inet.MAC{2, 0, 0, 0, 0, 1}},
		{IP: inet.Addr{10, 10, 10, 2}, MAC: inet.MAC{2, 0, 0, 0, 0, 2}},
	}
	var sum [2][]byte
	var rs [2]*accl.Responder
	var frames [2][][]byte // to each rank
	for r := range rs {
		sum[r] = make([]byte, 4)
		var err error
		rs[r], err = accl.NewResponder(accl.Config{Rank: r, Ranks: ranks},
			accl.Call{Collective: accl.AllReduce, Type: accl.Int32, Count: 1, Src: []byte{byte(20 + r), 0, 0, 0}, Dst: sum[r]})
		if err != nil {
			fmt.Println(err)
			return
		}
		frames[1-r] = rs[r].Frames(rs[r].Start())
	}
	for n := 0; len(frames[0])+len(frames[1]) > 0; n = 1 - n {
		in := frames[n]
		frames[n] = nil
		for _, f := range in {
			out, err := rs[n].Frame(f)
			if err != nil {
				fmt.Println("dropped:", err)
			}
			frames[1-n] = append(frames[1-n], out...)
		}
	}
	fmt.Println(rs[0].Results(), rs[1].Results(), sum[0][0], sum[1][0])
	// Output: [<nil>] [<nil>] 41 41
}
