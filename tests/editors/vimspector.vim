" Drives Vim with vimspector through a session, as a user would: .vimspector.json beside the program is the guide's.
" In the environment: PROGRAM, LINE (of the breakpoint), REPORT (a file), SECONDS (to wait for one thing).

function! s:Tell(...) abort
  call writefile([join(a:000, ' ')], $REPORT, 'a')
endfunction

function! s:Wait(what, Condition) abort
  let l:until = localtime() + str2nr($SECONDS)
  while !a:Condition()
    if localtime() > l:until
      throw 'waited for ' . a:what
    endif
    sleep 20m
  endwhile
endfunction

" The line and the name of the frame that is shown, [] while the program runs.
function! s:Frame() abort
  return py3eval('(lambda frame: [frame["line"], frame["name"]] if frame else [])(_vimspector_session._stackTraceView.GetCurrentFrame())')
endfunction

" What the window of variables shows of one, '' when it shows none.
function! s:Variable(name) abort
  for l:line in getbufline('vimspector.Variables', 1, '$')
    let l:found = matchlist(l:line, '^ *\*\?[+-]\? *' . a:name . '\%( ([^)]*)\)\?: \(.*\)$')
    if !empty(l:found)
      return l:found[1]
    endif
  endfor
  return ''
endfunction

function! s:Drive() abort
  call cursor(str2nr($LINE), 1)
  call vimspector#ToggleBreakpoint()
  let s:ended = 0
  autocmd User VimspectorDebugEnded let s:ended = 1
  call vimspector#LaunchWithSettings({'configuration': 'torch.compile: current file'})
  call s:Wait('a stop', {-> !empty(s:Frame()) && s:Variable('y') !=# ''})
  let l:frame = s:Frame()
  call s:Tell('stopped', l:frame[0], l:frame[1], s:Variable('y'))
  call vimspector#StepOver()
  call s:Wait('a step', {-> !empty(s:Frame()) && s:Frame()[0] != l:frame[0]})
  call s:Tell('stepped', s:Frame()[0])
  call vimspector#Continue()
  call s:Wait('the end of the program', {-> join(getbufline('vimspector.StackTrace', 1, '$')) =~# 'terminated'})
  call vimspector#Reset()
  call s:Wait('the end', {-> s:ended})
  call s:Tell('ended')
endfunction

function! s:Run(timer) abort
  try
    call s:Drive()
  catch
    call s:Tell('problem', v:exception, v:throwpoint)
    call writefile(getbufline('vimspector.Variables', 1, '$') + split(execute('messages'), "\n"), $REPORT, 'a')
  endtry
  qall!
endfunction

execute 'edit' $PROGRAM
call timer_start(0, function('s:Run'))
