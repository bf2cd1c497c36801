# rope.gp - the table of rotary frequencies: difference from the reference, frequency by frequency.
# Usage: gnuplot -d -e "data='rope.dat'; out='rope.svg'" reports/rope.gp      (title='...' is optional)
# Blocks of the data: difference (index, relative difference), not-finite (index, 1e1). A difference of zero stands on
# the floor 1e-12.
if (!exists("data")) data = "reports/out/rope.dat"
if (!exists("out")) out = "reports/out/rope.svg"
if (!exists("title")) title = "Rotary frequencies: difference from the reference"
set terminal svg size 960,360 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set logscale y
set yrange [2e-13:2e2]
set ytics ("bit-equal" 1e-12, "1e-9" 1e-9, "1e-6" 1e-6, "1e-3" 1e-3, "not finite" 10)
set grid ytics lc rgb "#9a9a9a" lw 0.5 dt 3
stats data using 1 nooutput name "S"
set xrange [-0.5:S_max + 0.5]
# Whole indices, about eight of them.
set xtics 0, ceil((S_max + 1) / 8)
set xlabel "index of the frequency, from the fastest to the slowest"
set ylabel "relative difference" offset -0.5,0
set lmargin 13
set key at graph 0.5, screen 0.01 center bottom horizontal Left reverse samplen 2 width -2 font ",13"
set bmargin 5.2
# One rounding of float32: what a table computed in float64 and stored in float32 may differ by.
rounding = 2.0 ** -24
plot rounding with lines lc rgb "#e69f00" lw 2 title "one float32 rounding", \
     data index "difference" using 1:2 with points lc rgb "#0072b2" pt 7 ps 0.6 title "difference", \
     data index "not-finite" using 1:2 with points lc rgb "#d55e00" pt 2 ps 1 lw 2 title "not finite"
