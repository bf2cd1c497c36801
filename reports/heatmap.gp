# heatmap.gp - where the error lies: a column for each stage in forward order, a line for each row (token).
# Usage: gnuplot -d -e "data='heatmap.dat'; out='heatmap.svg'" reports/heatmap.gp      (title='...' is optional)
# Blocks of the data: cells (stage, line, log10 of the row's relative L2 error; -10 no error, 1 not finite, NaN where nothing
# was compared), not-finite (stage, line), borders and groups (layers), lines (position, label), first (x, y). The colours
# stand for the same errors in every run: 1e-9 and less to 1 and more.
if (!exists("data")) data = "reports/out/heatmap.dat"
if (!exists("out")) out = "reports/out/heatmap.svg"
if (!exists("title")) title = "Error of each row in each stage"
set terminal svg size 960,480 dynamic noenhanced standalone font "sans-serif,15" background rgb "white"
set output out
set title title
set cbrange [-10:1]
set cbtics ("bit-equal" -9.6, "1e-9" -9, "1e-7" -7, "1e-5" -5, "1e-3" -3, "1e-1" -1, "not finite" 0.6)
set cblabel "row's relative L2 error" offset 0.5,0
# One step of the palette is 0.1, so that its jumps at -9.2 and 0.2 are sharp. Even in lightness and safe for the colour-blind, dark blue over grey to yellow, between two colours that are no error size.
set palette maxcolors 110 defined (-10 "#9fd3f5", -9.2 "#9fd3f5", -9.2 "#00224e", -7.5 "#2a3f6d", -6 "#575d6d", \
    -4.5 "#7d7c78", -3 "#a59c74", -1.5 "#d2c060", 0.2 "#fee838", 0.2 "#d65f01", 1 "#d65f01")
stats data index "cells" using 1:2 nooutput name "S"
set xrange [-0.5:S_max_x + 0.5]
lines = S_max_y + 1
# The band above the rows, a fixed share of the height, is for the names of the layers.
set yrange [lines - 0.5:-0.5 - 0.07 * lines]
unset xtics
set ytics scale 0.4 nomirror font ",12"
set xlabel "stages, from first to last"
set ylabel "row"
set lmargin at screen 0.13
set rmargin at screen 0.84
set key at graph 0.5, screen 0.01 center bottom horizontal Left reverse samplen 2 width -2 font ",13"
set tmargin 2.6
set bmargin 4.2
plot data index "lines" using (NaN):1:ytic(2) notitle, \
     data index "cells" using 1:2:3 with image notitle, \
     data index "not-finite" using 1:2 with points lc rgb "black" pt 2 ps 0.5 lw 1.5 title "not finite", \
     data index "borders" using 1:2 with lines lc rgb "#9a9a9a" lw 1 notitle, \
     data index "groups" using 1:2:3 with labels center font ",13" notitle, \
     data index "first" using 1:2 with lines lc rgb "#d55e00" lw 2 dt 2 title "first divergence"
