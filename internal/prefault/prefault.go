// Package prefault makes the program start faster: whoever imports it has the
// program's text mapped with one system call, before other packages are initialised.
// Otherwise each page that is touched for the first time costs a fault, some 25 µs
// on a virtual machine, and a short command pays for a hundred of them: a tenth of
// what a whole `dlock run` takes.
package prefault
