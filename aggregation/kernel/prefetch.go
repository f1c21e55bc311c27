package kernel

import "unsafe"
