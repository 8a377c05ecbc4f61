#include "textflag.h"

DATA quotes<>+0(SB)/8, $0x2222222222222222
DATA quotes<>+8(SB)/8, $0x2222222222222222
GLOBL quotes<>(SB), RODATA|NOPTR, $16

DATA slashes<>+0(SB)/8, $0x5c5c5c5c5c5c5c5c
DATA slashes<>+8(SB)/8, $0x5c5c5c5c5c5c5c5c
GLOBL slashes<>(SB), RODATA|NOPTR, $16

DATA spaces<>+0(SB)/8, $0x2020202020202020
DATA spaces<>+8(SB)/8, $0x2020202020202020
GLOBL spaces<>(SB), RODATA|NOPTR, $16

// The low 16 bits of ends say which of the 16 bytes at offset are a quote, a control character or from 0x80
// on (the comparison with a space is signed), those of slashes which are a backslash.
#define MARK(offset, ends, slashes) \
	MOVOU    offset(SI), X3 \
	MOVOA    X3, X4         \
	PCMPEQB  X0, X4         \
	MOVOA    X2, X5         \
	PCMPGTB  X3, X5         \
	PCMPEQB  X1, X3         \
	POR      X5, X4         \
	PMOVMSKB X4, ends       \
	PMOVMSKB X3, slashes

// JOIN puts the low 16 bits of what has been marked at the next place of all.
#define JOIN(shift, ends, slashes) \
	SHLQ shift, ends    \
	SHLQ shift, slashes \
	ORQ  ends, AX       \
	ORQ  slashes, BX

// func skim64(b *byte, n int, simple *[256]bool) (plain, escapes int)
// SSE2 is in every amd64, so nothing is detected.
TEXT ·skim64(SB), NOSPLIT, $0-40
	MOVQ  b+0(FP), SI
	MOVQ  n+8(FP), CX
	MOVQ  simple+16(FP), DI
	MOVOU quotes<>(SB), X0
	MOVOU slashes<>(SB), X1
	MOVOU spaces<>(SB), X2
	XORL  DX, DX                // 1 if the block before ended in a backslash
	XORL  R8, R8                // plain
	XORL  R9, R9                // escapes

block:
	SUBQ $64, CX
	JLT  done
	MARK(0, AX, BX)
	MARK(16, R10, R11)
	MARK(32, R12, R13)
	JOIN($16, R10, R11)
	MARK(48, R10, R11)
	JOIN($32, R12, R13)
	JOIN($48, R10, R11)
	LEAQ  (DX)(BX*2), R10       // what comes after a backslash; another one is not simple
	MOVQ  R10, R11
	NOTQ  R11
	TESTQ AX, R11
	JNE   done
	MOVQ  R9, R13

escape:
	TESTQ   R10, R10
	JEQ     next
	BSFQ    R10, R11
	MOVBLZX (SI)(R11*1), R12
	CMPB    (DI)(R12*1), $0
	JEQ     done
	INCQ    R13
	LEAQ    -1(R10), R11
	ANDQ    R11, R10
	JMP     escape

next:
	MOVQ R13, R9
	MOVQ BX, DX
	SHRQ $63, DX
	ADDQ $64, SI
	ADDQ $64, R8
	JMP  block

done:
	SUBQ DX, R8                 // its escape has not been read
	MOVQ R8, plain+24(FP)
	MOVQ R9, escapes+32(FP)
	RET
